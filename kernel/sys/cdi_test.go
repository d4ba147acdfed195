// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
)

const cdiJSON = `{"cdiVersion":"0.6.0","kind":"nvidia.com/gpu","devices":[
{"name":"0","containerEdits":{"deviceNodes":[{"path":"/dev/nvidia0"}]}},
{"name":"GPU-8f6d","containerEdits":{"deviceNodes":[{"path":"/dev/nvidia0"}]}}]}`

const cdiYAML = `---
cdiVersion: 0.5.0
kind: vendor.example/nic
devices:
- name: mlx5_0
  containerEdits:
    deviceNodes:
    - path: /dev/infiniband/uverbs0
- name: "all"
  containerEdits:
    env: [NIC=all]
`

func TestCDINames(t *testing.T) {
	t.Parallel()
	dir := kerneltest.Lay(t, map[string]string{
		"etc/a.json":     cdiJSON,
		"etc/b.yaml":     cdiYAML,
		"etc/notes.md":   "not a spec",
		"run/a.json":     cdiJSON,
		"run/bad.json":   "{",
		"run/kind.json":  `{"cdiVersion":"0.6.0","kind":"gpu","devices":[{"name":"x","containerEdits":{"env":["A=b"]}}]}`,
		"run/empty.json": `{"cdiVersion":"0.6.0","kind":"a.example/gpu","devices":[{"name":"x"}]}`,
	}, "\n")
	got, err := CDINames(filepath.Join(dir, "etc"), filepath.Join(dir, "run"), filepath.Join(dir, "none"))
	want := []string{"nvidia.com/gpu=0", "nvidia.com/gpu=GPU-8f6d", "vendor.example/nic=all", "vendor.example/nic=mlx5_0"}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
		t.Errorf("got %v", names)
	}
	for _, file := range []string{"bad.json", "kind.json", "empty.json"} {
		if err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s is not named: %v", file, err)
		}
	}
}

// A null in a list, a device's or all devices', is an error of its file: the library would follow it. The other files count.
func TestCDINullEntries(t *testing.T) {
	t.Parallel()
	for _, list := range []string{"deviceNodes", "netDevices", "hooks", "mounts"} {
		edits := `"containerEdits":{"` + list + `":[null]}`
		dir := kerneltest.Lay(t, map[string]string{
			"device.json": `{"cdiVersion":"1.1.0","kind":"a.example/gpu","devices":[{"name":"x",` + edits + `}]}`,
			"common.json": `{"cdiVersion":"1.1.0","kind":"b.example/gpu","devices":[{"name":"x","containerEdits":{"env":["A=b"]}}],` + edits + `}`,
			"good.json":   cdiJSON,
		}, "\n")
		got, err := CDINames(dir)
		if len(got) != 2 || err == nil {
			t.Errorf("%s: got %v, %v", list, got, err)
			continue
		}
		for _, want := range []string{"device.json", "common.json", "containerEdits." + list + " has a null entry", `device "x"`} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: no %s in %v", list, want, err)
			}
		}
	}
}

// Two files of one directory that claim a name make it unresolvable, whatever another directory says.
func TestCDIConflict(t *testing.T) {
	t.Parallel()
	dir := kerneltest.Lay(t, map[string]string{
		"etc/a.json": cdiJSON,
		"etc/b.json": strings.ReplaceAll(cdiJSON, "GPU-8f6d", "GPU-other"),
	}, "\n")
	got, err := CDINames(filepath.Join(dir, "etc"))
	if _, ok := got["nvidia.com/gpu=0"]; ok || err == nil || len(got) != 2 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestCDIWithoutRegistry(t *testing.T) {
	t.Parallel()
	if got, err := CDINames(filepath.Join(t.TempDir(), "none")); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}
