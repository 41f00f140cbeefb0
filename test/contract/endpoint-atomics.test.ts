import { endpointAtomicsContract } from './endpoint-atomics.ts';
import { openPosix, openSelf } from './uct-implementations.ts';

endpointAtomicsContract('self', openSelf);
endpointAtomicsContract('posix', openPosix);
