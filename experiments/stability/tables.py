"""The page's tables, from the rows."""


def tables(every):
    return {}
