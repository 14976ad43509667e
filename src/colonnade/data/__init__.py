"""Where columns come from: tables joined on ids, public data sets, and ways to split columns between parties.

`table` and `preprocess` turn data frames into a Federation, `split` cuts one array into parties' columns
and rows into train, validation and test, `corrupt` damages a party on purpose, `fetch` finds files, and
`sets` has one loader per public data set.
"""
