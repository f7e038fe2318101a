/* SPDX-License-Identifier: MIT
 *
 * JSON strings on standard output. printf writes the rest of JSON.
 */
#pragma once

/* Prints "key": "text", escaped, and after it the text `then`. Bytes that are not UTF-8 become
 * U+FFFD. */
void json_text(const char *key, const char *text, const char *then);
