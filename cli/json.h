/* SPDX-License-Identifier: MIT
 *
 * JSON strings on standard output. printf writes the rest of JSON.
 */
#ifndef EMBFUSE_CLI_JSON_H
#define EMBFUSE_CLI_JSON_H

/* Prints the text in quotes, escaped. Bytes that are not UTF-8 become U+FFFD. */
void json_string(const char *text);

/* Prints "key": "text", and after it the text `then`. */
void json_text(const char *key, const char *text, const char *then);

#endif
