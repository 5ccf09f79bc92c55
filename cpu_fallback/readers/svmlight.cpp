#include "readers/svmlight.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <locale>
#include <sstream>
#include <string>
#include <vector>

#include "readers/decimal.hpp"

namespace gpuqs {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }
bool ends_token(char c) { return is_space(c) || c == '#'; }

template <class Value> bool convert(const char* first, const char* last, Value* value) {
    if (kParsesReals) return parse_number(first, last, value) != nullptr;
    std::istringstream stream(std::string(first, last));
    stream.imbue(std::locale::classic());
    return static_cast<bool>(stream >> *value);
}

bool same_word(const char* first, const char* last, const char* word) {
    for (; first < last && *word; first++, word++)
        if ((*first | 0x20) != *word) return false;
    return first == last && !*word;
}

// Words that stand for a number, the same ones as in LightGBM.
template <class Value> bool read_word(const char* first, const char* last, Value* value) {
    if (same_word(first, last, "nan") || same_word(first, last, "na") || same_word(first, last, "null")) {
        *value = std::numeric_limits<Value>::quiet_NaN();
        return true;
    }
    if (same_word(first, last, "inf") || same_word(first, last, "infinity")) {
        *value = std::numeric_limits<Value>::infinity();
        return true;
    }
    return false;
}

const char* token_end(const char* p, const char* end) {
    while (p < end && !ends_token(*p)) p++;
    return p;
}

// Counts the digits of a decimal number from the first that is not zero, including those of the fraction.
int64_t significant_digits(const char* p, const char* end) {
    int64_t n = 0;
    for (; p < end && (is_digit(*p) || *p == '.'); p++)
        if (is_digit(*p) && (n > 0 || *p != '0')) n++;
    return n;
}

// Reads the number that starts at p, correctly rounded, and returns where its token ends; null if the token is
// not a number. Numbers out of range are rounded to infinity or zero.
template <class Value> const char* read_number(const char* p, const char* end, Value* value) {
    const bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) p++;
    const char* const first = p;
    uint64_t mantissa = 0;
    while (p < end && is_digit(*p)) mantissa = mantissa * 10 + (*p++ - '0');
    int64_t n_digits = p - first, exponent = 0;
    if (p < end && *p == '.') {
        const char* const point = ++p;
        while (p < end && is_digit(*p)) mantissa = mantissa * 10 + (*p++ - '0');
        exponent = point - p;
        n_digits -= exponent;
    }
    if (n_digits == 0) {
        const char* const last = token_end(first, end);
        if (p != first || !read_word(first, last, value)) return nullptr;
        if (negative) *value = -*value;
        return last;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        const bool down = p < end && *p == '-';
        if (p < end && (*p == '-' || *p == '+')) p++;
        if (p == end || !is_digit(*p)) return nullptr;
        int64_t power = 0;
        while (p < end && is_digit(*p)) power = std::min<int64_t>(power * 10 + (*p++ - '0'), 1 << 30);
        exponent += down ? -power : power;
    }
    if (p < end && !ends_token(*p)) return nullptr;
    // More digits may not have fit the mantissa.
    const bool done = (n_digits <= 19 && scale_exactly(mantissa, exponent, value)) || convert(first, p, value);
    if (!done) *value = significant_digits(first, p) + exponent > 0 ? std::numeric_limits<Value>::infinity() : Value(0);
    if (negative) *value = -*value;
    return p;
}

// Reads an integer without sign; null if there is none, or if it does not fit an int64.
const char* read_whole(const char* p, const char* end, int64_t* value) {
    const char* const first = p;
    int64_t n = 0;
    for (; p < end && is_digit(*p); p++) {
        if (n > (std::numeric_limits<int64_t>::max() - 9) / 10) return nullptr;
        n = n * 10 + (*p - '0');
    }
    *value = n;
    return p == first ? nullptr : p;
}

template <class Value> class Parser {
public:
    explicit Parser(const SvmlightRows<Value>& rows) : rows_(rows), seen_(rows.n_features, -1) {
        result_.lowest_id = std::numeric_limits<int64_t>::max();
    }

    SvmlightResult parse(const char* p, const char* end) {
        while (p < end && result_.rows < rows_.capacity) {
            const void* const feed = std::memchr(p, '\n', end - p);
            const char* const line_end = feed ? static_cast<const char*>(feed) : end;
            result_.lines++;
            if (!read_line(p, line_end)) break;
            p = feed ? line_end + 1 : end;
        }
        return result_;
    }

private:
    bool read_line(const char* p, const char* end) {
        p = skip_space(p, end);
        if (p == end || *p == '#') return true;
        const int64_t row = result_.rows;
        values_ = rows_.values + row * rows_.n_features;
        std::fill_n(values_, rows_.n_features, rows_.absent);
        rows_.labels[row] = std::numeric_limits<double>::quiet_NaN();
        rows_.queries[row] = 0;
        has_query_ = false;

        const char* const first_end = token_end(p, end);
        if (std::find(p, first_end, ':') == first_end) {
            if (!read_number(p, end, &rows_.labels[row])) return fail(SVMLIGHT_LABEL, p, end) != nullptr;
            result_.n_labels++;
            p = first_end;
        }
        for (p = skip_space(p, end); p != end && *p != '#'; p = skip_space(p, end)) {
            p = is_digit(*p) ? read_feature(p, end) : read_query(p, end);
            if (!p) return false;
        }
        result_.rows++;
        return true;
    }

    const char* read_feature(const char* token, const char* end) {
        int64_t id;
        const char* p = read_whole(token, end, &id);
        if (!p || p == end || *p != ':') return fail(SVMLIGHT_FEATURE, token, end);
        const int64_t column = id - rows_.first_id;
        if (column < 0 || column >= rows_.n_features) return fail(SVMLIGHT_OUTSIDE, token, end, id);
        if (seen_[column] == result_.rows) return fail(SVMLIGHT_TWICE, token, end, id);
        seen_[column] = result_.rows;
        result_.lowest_id = std::min(result_.lowest_id, id);
        p = read_number(p + 1, end, values_ + column);
        return p ? p : fail(SVMLIGHT_VALUE, token, end);
    }

    const char* read_query(const char* token, const char* end) {
        if (end - token < 4 || std::memcmp(token, "qid:", 4) != 0) return fail(SVMLIGHT_FEATURE, token, end);
        const bool negative = end - token > 4 && token[4] == '-';
        int64_t query;
        const char* const p = read_whole(token + (negative ? 5 : 4), end, &query);
        if (!p || (p < end && !ends_token(*p)) || has_query_) return fail(SVMLIGHT_QUERY, token, end);
        rows_.queries[result_.rows] = negative ? -query : query;
        has_query_ = true;
        result_.n_queries++;
        return p;
    }

    static const char* skip_space(const char* p, const char* end) {
        while (p < end && is_space(*p)) p++;
        return p;
    }

    const char* fail(SvmlightProblem problem, const char* token, const char* end, int64_t id = 0) {
        result_.problem = problem;
        result_.id = id;
        result_.token = token;
        result_.token_size = token_end(token, end) - token;
        return nullptr;
    }

    const SvmlightRows<Value>& rows_;
    std::vector<int64_t> seen_;  // the last row that gave each column a value
    SvmlightResult result_{};
    Value* values_ = nullptr;
    bool has_query_ = false;
};

}  // namespace

SvmlightResult parse_svmlight(const char* text, const char* end, const SvmlightRows<float>& rows) {
    return Parser<float>(rows).parse(text, end);
}

SvmlightResult parse_svmlight(const char* text, const char* end, const SvmlightRows<double>& rows) {
    return Parser<double>(rows).parse(text, end);
}

const char* cut_lines(const char* text, const char* end, int64_t max_lines) {
    const char* p = text;
    for (int64_t line = 0; line < max_lines && p < end; line++) {
        const void* const feed = std::memchr(p, '\n', end - p);
        if (!feed) break;
        p = static_cast<const char*>(feed) + 1;
    }
    return p;
}

int64_t count_lines(const char* text, const char* end) {
    if (text == end) return 0;
    return std::count(text, end, '\n') + (end[-1] != '\n');
}

}  // namespace gpuqs
