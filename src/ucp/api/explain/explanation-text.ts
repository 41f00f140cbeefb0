/** Formats an explanation as text, for every engine: the table of chosen protocols, then the rejected ones and the reasons. */

import type { Engine } from '../engine.ts';
import type { ExplainedChoice, Explanation } from './explanation.ts';

/** Adds the engine to an explanation. */
export function explainedBy(engine: Engine, choice: ExplainedChoice): Explanation {
  const line = `engine: ${engine.name} ${engine.version} (${engine.reason})`;
  return { ...choice, engine, toString: () => `${choice.toString()}\n${line}` };
}

/** The table and the rejections. */
export function explanationText(
  explanation: Pick<ExplainedChoice, 'operation' | 'local' | 'remote' | 'chosen' | 'rejected'>,
): string {
  const title = `${explanation.operation}: local ${explanation.local} memory, remote ${explanation.remote} memory`;
  const rows = explanation.chosen.map(({ bytesMin, bytesMax, protocol, transport, estimatedNs, note }) => [
    `${bytesMin}..${bytesMax === Number.POSITIVE_INFINITY ? 'inf' : bytesMax}`,
    protocol,
    transport,
    [estimatedNs === undefined ? '' : `(?) ${estimatedNs} ns`, note ?? ''].filter((part) => part !== '').join(', '),
  ]);
  const widths = [0, 1, 2, 3].map((column) => Math.max(...rows.map((row) => row[column]!.length), 8));
  const width = Math.max(
    title.length,
    widths.reduce((sum, part) => sum + part + 3, -3),
  );
  const line = `+-${'-'.repeat(width)}-+`;
  const lines = [line, `| ${title.padEnd(width)} |`, line];
  for (const row of rows) {
    const text = row.map((cell, column) => cell.padEnd(widths[column]!)).join(' | ');
    lines.push(`| ${text.padEnd(width)} |`);
  }
  if (rows.length === 0) lines.push(`| ${'no transport can do it'.padEnd(width)} |`);
  lines.push(line);
  for (const { transport, protocol, reason } of explanation.rejected) {
    lines.push(`not used: ${transport}${protocol === undefined ? '' : ` ${protocol}`}: ${reason}`);
  }
  return lines.join('\n');
}
