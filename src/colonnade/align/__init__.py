"""Private alignment: which rows all sides hold, found without showing an id that is not shared."""
