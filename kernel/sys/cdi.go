// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// noNulls refuses a spec with a null among the entries of a list: the library follows these pointers without a look, and would end the process.
type noNulls struct{}

// Validate is what the library asks.
func (noNulls) Validate(s *specs.Spec) error {
	if list := nullIn(&s.ContainerEdits); list != "" {
		return fmt.Errorf("containerEdits.%s has a null entry", list)
	}
	for i := range s.Devices {
		if list := nullIn(&s.Devices[i].ContainerEdits); list != "" {
			return fmt.Errorf("device %.100q: containerEdits.%s has a null entry", s.Devices[i].Name, list)
		}
	}
	return nil
}

// nullIn names the list of edits that has a null entry, of all whose entries are pointers.
func nullIn(e *specs.ContainerEdits) string {
	switch {
	case slices.Contains(e.DeviceNodes, nil):
		return "deviceNodes"
	case slices.Contains(e.NetDevices, nil):
		return "netDevices"
	case slices.Contains(e.Hooks, nil):
		return "hooks"
	case slices.Contains(e.Mounts, nil):
		return "mounts"
	}
	return ""
}

// CDIDirs are the registry's default directories, lowest priority first (CDI specification, "Configuration").
func CDIDirs() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// CDINames returns the qualified names ("vendor/class=name") that a runtime can resolve from the spec files (*.json,
// *.yaml) in the directories. The error joins one per bad file, per name that two files of one directory claim, and per
// directory that cannot be listed; the other names count. A directory that does not exist is empty.
//
// The reference library reads the files, because it is the runtimes' own: a name that it would refuse (empty edits, a
// conflict, a newer version) fails the container when we pass it on. Measured with 129 devices in 32 KiB of YAML it adds
// 0.4 MB to a stripped binary and no resident memory to speak of, as its cache is dropped on return and its watcher is
// off.
func CDINames(dirs ...string) (map[string]struct{}, error) {
	cdi.SetSpecValidator(noNulls{}) // the library takes one for the whole process, under a lock; always this one
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs(dirs...))
	if err != nil {
		return nil, fmt.Errorf("read CDI registry: %w", err)
	}
	names := map[string]struct{}{}
	for _, n := range cache.ListDevices() {
		names[n] = struct{}{}
	}
	var errs []error
	for _, dir := range dirs {
		if _, err := specFiles(dir); err != nil {
			errs = append(errs, err)
		}
	}
	byFile := cache.GetErrors()
	for _, path := range slices.Sorted(maps.Keys(byFile)) {
		// The library goes over a file's devices by map: without an order of ours the same registry would be another error each time.
		list := slices.SortedFunc(slices.Values(byFile[path]), func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		errs = append(errs, fmt.Errorf("read CDI spec %s: %w", path, errors.Join(list...)))
	}
	return names, errors.Join(errs...)
}

// specFiles are the files of a directory that the reference library takes for specs (pkg/cdi, scanSpecDirs), which keeps to itself that it could not
// list one. A directory that does not exist is empty.
func specFiles(dir string) (files []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list CDI specs: %w", err)
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".json" || ext == ".yaml") {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}
