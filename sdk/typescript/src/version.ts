/** The version of this package, which goes with that of the server. */
export const VERSION = "0.2.0";
