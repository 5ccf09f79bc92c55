// Numbers of JSON text, alone and in arrays of nothing else.
#pragma once
#include <cstdint>
#include <vector>

namespace gpuqs {

struct JsonNumber {
    const char* end;  // behind the number; null: there is none
    bool whole;       // written without a point and an exponent
    bool fits;        // else it has more digits, or is larger or smaller, than is read here
    int64_t integer;  // of whole ones
    double real;      // of all, the nearest
};

// Reads [p, end) up to the first byte that is no part of a number.
JsonNumber read_json_number(const char* p, const char* end);

// Whether it lies halfway between two floats: what was rounded to it may have been nearer to one of them.
bool is_halfway_between_floats(double value);

// Reads numbers up to the bracket that closes their array, and gives what lies behind it; null: it holds something else, no
// number, one that does not fit, or, where floats are wanted (`single`), one halfway between two. `integers` are all of them if
// no other one is met, else `reals` are.
const char* read_json_numbers(const char* p, const char* end, bool single, std::vector<int64_t>& integers, std::vector<double>& reals);

}  // namespace gpuqs
