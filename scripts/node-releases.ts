/** The releases of Node.js that the tests run on, as `engines` of package.json promises them; the oldest of each line come first. */

/** Release by the name under which `npm run test:node` knows it. */
export const NODE_RELEASES: Readonly<Record<string, string>> = {
  '20.19': '20.19.0',
  20: '20.20.2',
  '22.12': '22.12.0',
  22: '22.23.3',
  24: '24.21.0',
  26: '26.12.1',
};

/** The package of npm that has a release. */
export function nodePackage(release: string): string {
  return `node-linux-${process.arch}@${release}`;
}
