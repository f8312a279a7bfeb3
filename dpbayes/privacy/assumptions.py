"""Assumptions that a guarantee makes about a user's Stan program, and claims that it omits."""

CUSTOM_PROGRAM = (
    "the user's Stan program passed the contract check at random points only; that each record's "
    "log-likelihood is a function of that record's data, the public data and the parameters "
    "everywhere, that no error in it hangs on a record and on parameters or random numbers, and "
    "that its prior is proper, is the user's claim"
)
PROVED_PROGRAM = (
    "it was proved from the text of the user's Stan program that confidential columns reach its "
    "target only through pseudo_log_lik, record by record and with the given weights, anchor and "
    "window, and reach no bound, prior, message or replicate, and that the prior is proper; that "
    "log_lik is normalised, and that neither a value of the declared domain nor a number of "
    "records is an error in the program, is the user's claim"
)
SAME_BITS = (
    "a record's term under the user's Stan program is the same to the last bit beside other "
    "records: its arithmetic does not magnify the last bit of a function, as sin(1e17 * y) does"
)
ANY_PROGRAM = (
    "the user's Stan program ends for every record of the declared domain, within the memory there "
    "is, and how long it takes is not observed; nothing else is assumed of it, as it is given each "
    "record alone"
)
