// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package lab

import (
	"testing"
	"time"
)

func TestVersions(t *testing.T) {
	t.Parallel()
	v, err := Versions()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"CONTAINERD_2_4", "CONTAINERD_2_0", "CONTAINERD_1_7", "CONTAINERD_1_7_CDI", "RUNC", "CRICTL", "IMAGE"} {
		if v[key] == "" {
			t.Errorf("versions.env has no %s", key)
		}
	}
}

func TestParseVersionsRefuses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no value":  "A=",
		"no equals": "A",
		"repeated":  "A=1\nA=2",
	} {
		if _, err := ParseVersions(text); err == nil {
			t.Errorf("%s: %q was accepted", name, text)
		}
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{
		0: 20 * time.Millisecond, 4 * time.Millisecond: 20 * time.Millisecond, 10 * time.Millisecond: 40 * time.Millisecond, time.Second: 250 * time.Millisecond,
	} {
		if got := Pause(took, 20*time.Millisecond); got != want {
			t.Errorf("after a check of %s: %s, want %s", took, got, want)
		}
	}
}
