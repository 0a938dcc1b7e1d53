"""Sources with one table or curve each: gate-and-route, THETA, Inoue, Yang, the survey, SLO sizing, Dong, SVF."""
