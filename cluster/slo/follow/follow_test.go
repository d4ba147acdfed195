// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package follow

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/koord-rt/koord-rt/cluster/slo/config"
)

func TestNote(t *testing.T) {
	t.Parallel()
	if got := note([]string{"one", "two"}); got != "one; two" {
		t.Error(got)
	}
	long := note([]string{strings.Repeat("ä", maxNote)})
	if len(long) > maxNote || !utf8.ValidString(long) || !strings.HasSuffix(long, "ä...") {
		t.Errorf("%d bytes, ends with %q", len(long), long[len(long)-8:])
	}
}

// TestReasons: dashboards and alerts know upstream's reasons.
func TestReasons(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		config.KeyColocation: "ColocationCfgUnmarshalFailed", config.KeyNormalization: "CPUNormalizationCfgUnmarshalFailed",
		config.KeyAmplification: "ResourceAmplificationCfgUnmarshalFailed", config.KeyThreshold: "SLOCfgUnmarshalFailed",
		config.KeyQOS: "SLOCfgUnmarshalFailed", config.KeyBurst: "SLOCfgUnmarshalFailed", config.KeySystem: "SLOCfgUnmarshalFailed",
		config.KeyHostApplication: "SLOCfgUnmarshalFailed",
	} {
		if got := reason(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}
