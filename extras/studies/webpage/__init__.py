# SPDX-License-Identifier: MIT
"""One page about results: what it shows, and its templates, style and scripts."""
