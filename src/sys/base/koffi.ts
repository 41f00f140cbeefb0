/** The FFI. It is not imported: a bundler would follow an import, and leave the native code behind. */

import './platform.ts';
import type Koffi from 'koffi';
import { requireDependency } from '../../ucs/sys/package.ts';

/** The exports of koffi. */
export const koffi: typeof Koffi = requireDependency('koffi') as typeof Koffi;
