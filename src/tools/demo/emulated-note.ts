/** The note below figures of the demonstration that were measured on an emulated card. The callers decide when to print it. */

/** One line. */
export const EMULATED_NOTE = 'emulated: the figures are those of memory copies here, not those of cards.';
