// Tables of numbers that another library holds, read where they lie, through Arrow's C data interface
// (https://arrow.apache.org/docs/format/CDataInterface.html).
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace gpuqs {

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    ArrowSchema **children, *dictionary;
    void (*release)(ArrowSchema*);
    void* private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void** buffers;
    ArrowArray **children, *dictionary;
    void (*release)(ArrowArray*);
    void* private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(ArrowArrayStream*, ArrowSchema*);
    int (*get_next)(ArrowArrayStream*, ArrowArray*);
    const char* (*get_last_error)(ArrowArrayStream*);
    void (*release)(ArrowArrayStream*);
    void* private_data;
};

// Converts numbers to `Out`, each rounded once; NaN where the validity bits say that a number is null (no bits: none is).
template <typename In, typename Out>
void copy_numbers(const void* from, const uint8_t* bits, int64_t first, int64_t n, Out* out) {
    const In* numbers = static_cast<const In*>(from) + first;
    if (!bits) {
        for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(numbers[i]);
        return;
    }
    for (int64_t i = 0; i < n; ++i) {
        const int64_t bit = first + i;
        const bool there = bits[bit >> 3] >> (bit & 7) & 1;
        out[i] = there ? static_cast<Out>(numbers[i]) : std::numeric_limits<Out>::quiet_NaN();
    }
}

template <typename Out>
void copy_truth(const void* from, const uint8_t* bits, int64_t first, int64_t n, Out* out) {
    const uint8_t* truth = static_cast<const uint8_t*>(from);
    for (int64_t i = 0; i < n; ++i) {
        const int64_t bit = first + i;
        const bool there = !bits || (bits[bit >> 3] >> (bit & 7) & 1);
        out[i] = there ? static_cast<Out>(truth[bit >> 3] >> (bit & 7) & 1) : std::numeric_limits<Out>::quiet_NaN();
    }
}

class ArrowTable {
public:
    ArrowTable() = default;
    ArrowTable(const ArrowTable&) = delete;
    ArrowTable& operator=(const ArrowTable&) = delete;
    ~ArrowTable() {
        for (ArrowArray& part : parts_) part.release(&part);
        if (schema_.release) schema_.release(&schema_);
    }

    // Takes ownership of a stream's schema; false if the stream gives none.
    bool open(ArrowArrayStream* stream) {
        if (stream->release && stream->get_schema(stream, &schema_) == 0) return true;
        schema_.release = nullptr;
        return false;
    }

    // Appends all that distinguishes schemas: each column's name and type. False if a column is nested, or of an extension type.
    bool describe(std::string& key) const {
        if (std::strcmp(schema_.format, "+s") != 0 || schema_.dictionary) return false;
        for (int64_t at = 0; at < schema_.n_children; ++at) {
            const ArrowSchema& column = *schema_.children[at];
            if (!is_flat(column)) return false;
            key += column.format;
            if (column.dictionary) {
                if (!is_flat(*column.dictionary) || column.dictionary->dictionary) return false;
                key += column.flags & 1 ? " of ordered " : " of ";
                key += column.dictionary->format;
            }
            key += '\0';
            key += column.name ? column.name : "";
            key += '\0';
        }
        return true;
    }

    // Takes ownership of all rows, once; false if the stream gives an error, or rows that are not a table's.
    bool read(ArrowArrayStream* stream) {
        for (;;) {
            parts_.emplace_back();  // before there is a part: it would leak if there were no room for it
            ArrowArray& part = parts_.back();
            const bool is_read = stream->get_next(stream, &part) == 0;
            if (!is_read || !part.release) {
                parts_.pop_back();
                return is_read;
            }
            n_rows_ += part.length;
            const bool all_there = part.null_count == 0 || part.n_buffers < 1 || !part.buffers[0];
            if (!all_there || part.n_children != schema_.n_children) return false;
        }
    }

    int64_t n_rows() const { return n_rows_; }
    int64_t n_columns() const { return schema_.n_children; }

    // Writes rows [start, stop) of one column; false if it does not hold plain numbers.
    template <typename Out>
    bool fill(int64_t column, int64_t start, int64_t stop, Out* out) const {
        int64_t begin = 0;
        for (const ArrowArray& part : parts_) {
            const int64_t first = start > begin ? start - begin : 0;
            const int64_t end = stop - begin < part.length ? stop - begin : part.length;
            begin += part.length;
            if (first >= end) continue;
            const ArrowArray& values = *part.children[column];
            if (!copy(schema_.children[column]->format, values, values.offset + part.offset + first, end - first, out)) return false;
            out += end - first;
        }
        return true;
    }

private:
    ArrowSchema schema_{};
    std::vector<ArrowArray> parts_;
    int64_t n_rows_ = 0;

    static bool is_flat(const ArrowSchema& column) { return column.n_children == 0 && !is_extension(column.metadata); }

    static bool is_extension(const char* metadata) {
        if (!metadata) return false;
        const auto number = [&metadata] {
            int32_t value;
            std::memcpy(&value, metadata, sizeof value);
            metadata += sizeof value;
            return value;
        };
        for (int32_t left = number(); left > 0; --left) {
            const int32_t length = number();
            if (std::string(metadata, length) == "ARROW:extension:name") return true;
            metadata += length;
            metadata += number();
        }
        return false;
    }

    template <typename Out>
    static bool copy(const char* format, const ArrowArray& values, int64_t first, int64_t n, Out* out) {
        if (format[0] == '\0' || format[1] != '\0' || values.n_buffers != 2) return false;
        const void* from = values.buffers[1];
        const uint8_t* bits = values.null_count == 0 ? nullptr : static_cast<const uint8_t*>(values.buffers[0]);
        switch (format[0]) {
            case 'g': copy_numbers<double>(from, bits, first, n, out); return true;
            case 'f': copy_numbers<float>(from, bits, first, n, out); return true;
            case 'l': copy_numbers<int64_t>(from, bits, first, n, out); return true;
            case 'L': copy_numbers<uint64_t>(from, bits, first, n, out); return true;
            case 'i': copy_numbers<int32_t>(from, bits, first, n, out); return true;
            case 'I': copy_numbers<uint32_t>(from, bits, first, n, out); return true;
            case 's': copy_numbers<int16_t>(from, bits, first, n, out); return true;
            case 'S': copy_numbers<uint16_t>(from, bits, first, n, out); return true;
            case 'c': copy_numbers<int8_t>(from, bits, first, n, out); return true;
            case 'C': copy_numbers<uint8_t>(from, bits, first, n, out); return true;
            case 'b': copy_truth(from, bits, first, n, out); return true;
            default: return false;
        }
    }
};

}  // namespace gpuqs
