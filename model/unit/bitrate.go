// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package unit

// BitRate is a bandwidth in bit/s, as operators and NodeSLO write it; the kernel counts in bytes.
type BitRate int64

// Bit rates that are used by name.
const (
	Kilobit BitRate = 1e3
	Megabit BitRate = 1e6
	Gigabit BitRate = 1e9
)

// BytesPerSecond is the rate as the kernel takes it, rounded down.
func (r BitRate) BytesPerSecond() uint64 { return uint64(max(r, 0)) / 8 }

// BitsOf is the rate of so many bytes per second.
func BitsOf(bytesPerSecond uint64) BitRate {
	const most = uint64(1<<63-1) / 8
	return BitRate(min(bytesPerSecond, most) * 8) //nolint:gosec // held above
}

// Whole is the rate rounded down to whole bytes, so that what is read back from the kernel is what was written.
func (r BitRate) Whole() BitRate { return r &^ 7 }

// Percent is a part of the rate, without overflow; p is held within 0 and 100.
func (r BitRate) Percent(p int64) BitRate {
	p = min(max(p, 0), 100)
	return r/100*BitRate(p) + r%100*BitRate(p)/100
}
