// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/slo"
)

// A NodeSLO that says a field twice, and differently, is followed, and both places are told once.
func TestFieldsSetTwiceAreTold(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	log, last := slog.New(slog.NewTextHandler(&text, nil)), ""
	for i, c := range []struct {
		raw  string
		told bool
	}{
		{`{"spec":{"resourceUsedThresholdWithBE":{"cpuSuppressThresholdPercent":60},"resourceThresholdStrategy":{"thresholds":{"cpu-suppress-percent":65}}}}`, true},
		{`{"metadata":{"generation":2},"spec":{"resourceUsedThresholdWithBE":{"cpuSuppressThresholdPercent":60},"resourceThresholdStrategy":{"thresholds":{"cpu-suppress-percent":65}}}}`, false},
		{`{"spec":{"resourceUsedThresholdWithBE":{"cpuSuppressThresholdPercent":60}}}`, false},
		{`{"spec":{"resourceUsedThresholdWithBE":{"cpuSuppressThresholdPercent":60},"resourceThresholdStrategy":{"thresholds":{"cpu-suppress-percent":65}}}}`, true},
	} {
		s, err := slo.DecodeNodeSLO([]byte(c.raw))
		if err != nil {
			t.Fatal(err)
		}
		text.Reset()
		last = toldUnread(log, last, setTwice(s.Conflicts))
		if got := text.String(); strings.Contains(got, "cpuSuppressThresholdPercent") != c.told || strings.Contains(got, "cpu-suppress-percent") != c.told {
			t.Errorf("%d: %q", i, got)
		}
	}
}
