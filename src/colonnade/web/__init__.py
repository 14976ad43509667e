"""How pages and calls over HTTP are served from a thread of a process that does something else, too."""
