"""The search benchmark: problems on which all methods are raced."""
