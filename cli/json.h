/* SPDX-License-Identifier: MIT
 *
 * JSON on standard output: the one thing that printf does not do by itself is a string.
 */
#ifndef EMBFUSE_CLI_JSON_H
#define EMBFUSE_CLI_JSON_H

/* "text" in quotes, escaped. Bytes that are no UTF-8 become U+FFFD. */
void json_string(const char *text);

/* "key": "text", then what follows. */
void json_text(const char *key, const char *text, const char *then);

#endif
