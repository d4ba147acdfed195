// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package figure

import (
	"strconv"

	"github.com/koord-rt/koord-rt/model/unit"
)

// BitRate is "10 Gbit/s", "2.5 Mbit/s" or "64 kbit/s".
func BitRate(r unit.BitRate) string {
	switch {
	case r >= unit.Gigabit:
		return decimal(float64(r)/float64(unit.Gigabit)) + " Gbit/s"
	case r >= unit.Megabit:
		return decimal(float64(r)/float64(unit.Megabit)) + " Mbit/s"
	case r >= unit.Kilobit:
		return decimal(float64(r)/float64(unit.Kilobit)) + " kbit/s"
	}
	return strconv.FormatInt(int64(r), 10) + " bit/s"
}
