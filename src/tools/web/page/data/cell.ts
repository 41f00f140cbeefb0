/** A cell of a table as data. Type only. */

/** A cell of a table. */
export interface Cell {
  readonly text: string;
  /** Class of the cell. */
  readonly kind?: string;
  readonly title?: string;
  readonly isHead?: boolean;
}
