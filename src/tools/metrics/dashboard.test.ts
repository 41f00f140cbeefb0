/** The dashboard asks for metrics that exist. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { METRICS } from '../../api/snapshot/metrics.ts';
import { cardFamilies } from './cards.ts';

it('the dashboard uses the names of the metrics', () => {
  const text = readFileSync(join(import.meta.dirname, '../../../docs/grafana/gaudi-ucx.json'), 'utf8');
  const { panels } = JSON.parse(text) as {
    readonly panels: readonly { readonly targets: readonly { expr: string }[] }[];
  };
  const asked = panels.flatMap(({ targets }) =>
    targets.flatMap(({ expr }) => expr.match(/\b(ucx|habanalabs)_\w+/g) ?? []),
  );
  const known = [...Object.keys(METRICS), ...cardFamilies(undefined).map(({ name }) => name)];
  expect(panels.length).toBeGreaterThan(8);
  expect(
    [...new Set(asked.map((name) => name.replace(/_bucket$/, '')))].filter((name) => !known.includes(name)),
  ).toEqual([]);
});
