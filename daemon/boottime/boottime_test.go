// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package boottime

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// It is the clock that /proc/uptime shows, to a hundredth of a second, and not the time of day.
func TestNow(t *testing.T) {
	t.Parallel()
	before := Now()
	data, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(data), " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil {
		t.Fatal(err)
	}
	shown, after := time.Duration(seconds*float64(time.Second)), Now()
	if shown < before-10*time.Millisecond || shown > after {
		t.Errorf("/proc/uptime shows %s, between %s and %s", shown, before, after)
	}
}
