/** The note under all figures of the demonstration that were not obtained on a card. Whether that is so is known elsewhere. */

/** One line. */
export const EMULATED_NOTE = 'emulated: the figures are those of memory copies here, not those of cards.';
