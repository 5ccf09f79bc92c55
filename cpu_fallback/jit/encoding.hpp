#pragma once

namespace gpuqs {

// How the processor's instructions on vector registers are encoded; none: tree programs are interpreted.
enum class Encoding { none, vex, evex };

}  // namespace gpuqs
