// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package usage

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/scan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Idle is what kidled found in a cgroup: memory by how many scans it was not touched in.
type Idle struct {
	// Cold is page cache that was idle for ColdScans scans or more: the rows of files, clean and dirty, evictable or not,
	// on the inactive list.
	Cold unit.Bytes
}

// ColdScans is from how many scans without an access on a page counts as cold.
const ColdScans = 5

// Idle reads memory.idle_page_stats, which only kernels with kidled have (Anolis, Alinux; cgroup v1).
func (c *Cgroup) Idle(b *root.Buffer, out *Idle) error {
	return table(b, c.fs.memory, c.path, "memory.idle_page_stats", parseIdlePageStats, out)
}

// HasIdle reports whether the cgroup has the file.
func (c *Cgroup) HasIdle() bool {
	return c.fs.memory != "" && unix.Access(c.fs.memory+c.path+"/memory.idle_page_stats", unix.F_OK) == nil
}

// maxBuckets bounds the columns; kidled has eight (KIDLED_BUCKETS_...).
const maxBuckets = 16

// parseIdlePageStats reads memory/PATH/memory.idle_page_stats, bytes by row and bucket. The comment lists the lower bounds of the
// buckets in scans; a row's letters are clean or dirty, swap or file, evictable or un-, inactive or active:
//
//	# version: 1.0
//	# buckets: 1,2,5,15,30,60,120,240
//	#                 [1,2)          [2,5)         [5,15)   …
//	  csei          2613248        4657152       18182144   …
//	  cfei          2633728        4640768       66531328   …
//
// Anolis: Documentation/vm/kidled.rst.
func parseIdlePageStats(b []byte, out *Idle) error {
	var cold [maxBuckets]bool
	var sum uint64
	buckets, rows := 0, 0
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		key, rest := scan.Field(line)
		ok := true
		switch string(key) {
		case "#":
			if name, bounds := scan.Field(rest); string(name) == "buckets:" {
				buckets, ok = coldBuckets(bounds, &cold)
			}
		case "cfei", "dfei", "cfui", "dfui":
			var n uint64
			n, ok = coldRow(rest, cold[:buckets])
			if ok = ok && n <= math.MaxInt64/4-sum/4; ok {
				sum += n
				rows++
			}
		}
		if !ok {
			return scan.ErrFormat
		}
	}
	if buckets == 0 || rows == 0 || sum > math.MaxInt64 {
		return scan.ErrFormat
	}
	out.Cold = unit.Bytes(sum)
	return nil
}

// coldBuckets reads "1,2,5,15" and says which of them are cold.
func coldBuckets(b []byte, cold *[maxBuckets]bool) (n int, ok bool) {
	b, _ = scan.Field(b)
	for len(b) > 0 && n < maxBuckets {
		i := 0
		for i < len(b) && b[i] != ',' {
			i++
		}
		bound, isNumber := scan.Uint(b[:i])
		if !isNumber {
			return 0, false
		}
		cold[n] = bound >= ColdScans
		n++
		b = b[min(i+1, len(b)):]
	}
	return n, n > 0 && len(b) == 0
}

// coldRow sums the cold columns.
func coldRow(rest []byte, cold []bool) (sum uint64, ok bool) {
	for _, c := range cold {
		var n uint64
		if n, rest, ok = scan.UintField(rest); !ok || n > math.MaxInt64/(4*maxBuckets) {
			return 0, false
		}
		if c {
			sum += n
		}
	}
	return sum, len(cold) > 0
}
