/** Cuts texts that have too many columns for where they are shown. */

/** The text, or its beginning and an ellipsis: at most `columns` characters. */
export function clip(text: string, columns: number): string {
  return text.length <= columns ? text : `${text.slice(0, columns - 1)}\u2026`;
}
