// Documents from svmlight / LETOR text: `label qid:1 3:0.5 7:1e-3 # comment`, one line each.
#pragma once
#include <cstdint>

namespace gpuqs {

enum SvmlightProblem {
    SVMLIGHT_OK = 0,
    SVMLIGHT_LABEL,     // the first token is neither a number nor id:value
    SVMLIGHT_FEATURE,   // a token is not id:value
    SVMLIGHT_VALUE,     // the value of id:value is not a number
    SVMLIGHT_OUTSIDE,   // the id is not a column of the model
    SVMLIGHT_TWICE,     // the id has a value in this line already
    SVMLIGHT_QUERY,     // qid: without an integer, or the second one in a line
};

// Receives the rows of a text: arrays of `capacity` rows, allocated by the caller.
template <class Value> struct SvmlightRows {
    int64_t capacity;
    int64_t n_features;
    int64_t first_id;  // the id of column 0
    Value absent;      // the value of a feature that a line lacks
    Value* values;     // [capacity][n_features]
    double* labels;    // [capacity]; NaN where a line has none
    int64_t* queries;  // [capacity]; 0 where a line has none
};

struct SvmlightResult {
    int64_t rows;
    int64_t lines;       // lines read, blank ones and comments too; with a problem: up to its line
    int64_t n_labels;    // rows with a label
    int64_t n_queries;   // rows with a qid
    int64_t lowest_id;   // INT64_MAX where there is no feature
    int problem;         // SvmlightProblem
    int64_t id;          // SVMLIGHT_OUTSIDE and SVMLIGHT_TWICE: the id
    const char* token;   // the token at fault
    int64_t token_size;
};

// Parses the whole lines of [text, end); the last one may lack its line feed. Stops at the first problem.
SvmlightResult parse_svmlight(const char* text, const char* end, const SvmlightRows<float>& rows);
SvmlightResult parse_svmlight(const char* text, const char* end, const SvmlightRows<double>& rows);

// The end of the first `max_lines` lines of [text, end), or of all whole lines if those are fewer.
const char* cut_lines(const char* text, const char* end, int64_t max_lines);

int64_t count_lines(const char* text, const char* end);

}  // namespace gpuqs
