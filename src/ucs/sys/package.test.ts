import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Status } from '../type/status.ts';
import { findManifest, PACKAGE_FOLDER, requireDependency } from './package.ts';

describe('the package', () => {
  it('is found by its name', () => {
    expect(findManifest(import.meta.url)).toBe(join(PACKAGE_FOLDER, 'package.json'));
    expect(existsSync(join(PACKAGE_FOLDER, 'package.json'))).toBe(true);
  });

  it('is missed beside a bundle', () => {
    const message = expect.stringMatching(
      /^gaudi-ucx is not installed where \/none\/bundle\.cjs can find it\. .*external/,
    );
    const missing = expect.objectContaining({ code: 'ERR_NOT_INSTALLED', status: Status.UNSUPPORTED, message });
    expect(() => findManifest('/none/bundle.cjs')).toThrow(missing);
  });

  it('loads its dependencies, and says why it cannot', () => {
    expect(requireDependency('koffi')).toHaveProperty('load');
    const message = expect.stringMatching(
      /^no-such-package, a dependency .* cannot be loaded: Cannot find module .*omit/s,
    );
    expect(() => requireDependency('no-such-package')).toThrow(
      expect.objectContaining({ code: 'ERR_NOT_INSTALLED', status: Status.UNSUPPORTED, message }),
    );
  });
});
