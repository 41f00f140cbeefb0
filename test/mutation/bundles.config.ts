/** The bundles that tests start programs from, without declarations and source maps: made anew for each fault. */

import type { RolldownOptions } from 'rolldown';
import whole from '../../rolldown.config.ts';

const bundles: RolldownOptions[] = (whole as RolldownOptions[])
  .slice(0, -1)
  .map((options) => ({ ...options, output: { ...options.output, cleanDir: false, sourcemap: false } }));

export default bundles;
