/** What every figure of the demonstration says that was not obtained on a card. */
export const EMULATED_NOTE = 'emulated: the figures are those of memory copies here, not those of cards.';
