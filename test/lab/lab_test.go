// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package lab

import "testing"

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
