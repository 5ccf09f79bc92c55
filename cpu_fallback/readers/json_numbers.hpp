// Numbers in JSON text, single or in arrays of only numbers.
#pragma once
#include <cstdint>
#include <vector>

namespace gpuqs {

struct JsonNumber {
    const char* end;  // just after the number; null if there is none
    bool whole;       // written without a point and an exponent
    bool fits;        // else it has more digits, or is larger or smaller, than is read here
    int64_t integer;  // if whole
    double real;      // the nearest double, whole or not
};

// Reads [p, end) up to the first byte that is no part of a number.
JsonNumber read_json_number(const char* p, const char* end);

// Whether a double lies halfway between two floats: the number that was rounded to it may have been nearer to one of them.
bool is_halfway_between_floats(double value);

// Reads numbers up to the bracket that closes their array, and returns what follows it. Null if the array is empty or holds
// something else, a number that does not fit or, if floats are wanted (`single`), one halfway between two floats. The numbers are
// in `integers` if all are whole, else in `reals`.
const char* read_json_numbers(const char* p, const char* end, bool single, std::vector<int64_t>& integers, std::vector<double>& reals);

}  // namespace gpuqs
