// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/model/unit"
)

// HugePages are the pages of one size that a memory node has set apart: its memory without them is what everybody else can have.
type HugePages struct{ Size, Total unit.Bytes }

// HugePages reads devices/system/node/nodeN/hugepages/hugepages-SIZEkB/nr_hugepages, the smallest pages first
// (Documentation/admin-guide/mm/hugetlbpage.rst). A kernel without CONFIG_HUGETLBFS has none.
func (fs FS) HugePages(node int) ([]HugePages, error) {
	dir := []string{nodeDir, "node" + strconv.Itoa(node), "hugepages"}
	names, err := fs.names(dir...)
	if err != nil {
		return nil, err
	}
	var out []HugePages
	for _, name := range names {
		size, ok := parseHugePageDir(name)
		if !ok {
			continue
		}
		n, err := fs.intAt(append(slices.Clone(dir), name, "nr_hugepages")...)
		if err != nil {
			return nil, err
		}
		if n < 0 || int64(n) > math.MaxInt64/int64(size) {
			return nil, fmt.Errorf("parse %s: %d pages", fs.Path(append(dir, name, "nr_hugepages")...), n)
		}
		out = append(out, HugePages{size, unit.Bytes(n) * size})
	}
	slices.SortFunc(out, func(a, b HugePages) int { return cmp.Compare(a.Size, b.Size) })
	return out, nil
}

// parseHugePageDir reads "hugepages-2048kB", where kB are KiB (hugetlbpage.rst).
func parseHugePageDir(name string) (unit.Bytes, bool) {
	text, ok := strings.CutPrefix(name, "hugepages-")
	if !ok {
		return 0, false
	}
	if text, ok = strings.CutSuffix(text, "kB"); !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 40)
	return unit.Bytes(n) << 10, err == nil && n > 0 //nolint:gosec // 40 bits
}
