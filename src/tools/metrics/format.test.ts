/** The format of an answer is that which the header Accept prefers. */

import { expect, it } from 'vitest';
import { formatFor } from './command.ts';
import { OPENMETRICS, PROMETHEUS } from './scrape.ts';

it.each([
  ['', PROMETHEUS],
  ['*/*', PROMETHEUS],
  ['text/plain;version=0.0.4', PROMETHEUS],
  ['application/openmetrics-text', OPENMETRICS],
  // Prometheus 2.42.
  [
    'application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1',
    OPENMETRICS,
  ],
  // Prometheus with scrape_protocols that begin with the text format.
  ['text/plain;version=0.0.4;q=0.5,application/openmetrics-text;version=1.0.0;q=0.4,*/*;q=0.2', PROMETHEUS],
  ['application/openmetrics-text;q=0, text/plain', PROMETHEUS],
])('%s', (accept, format) => {
  expect(formatFor(accept)).toBe(format);
});
