// Formats of a few bits whose numbers are entries of codebooks, with signs or steps of their own.
#pragma once

#include "examples/llm/quant.h"

namespace tessera::llm {

// Of blocks [..., bytes], as Integers has them.
IntegerBlocks IntegersOfIQ1S(const Tensor& blocks);
IntegerBlocks IntegersOfIQ1M(const Tensor& blocks);
IntegerBlocks IntegersOfIQ2XXS(const Tensor& blocks);
IntegerBlocks IntegersOfIQ2XS(const Tensor& blocks);
IntegerBlocks IntegersOfIQ2S(const Tensor& blocks);
IntegerBlocks IntegersOfIQ3XXS(const Tensor& blocks);
IntegerBlocks IntegersOfIQ3S(const Tensor& blocks);

}  // namespace tessera::llm
