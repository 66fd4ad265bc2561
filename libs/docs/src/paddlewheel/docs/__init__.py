"""The documentation: reference pages made from code, the check of links, the site."""
