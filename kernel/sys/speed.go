// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

// HyperThreads reports whether sibling threads run: devices/system/cpu/smt/active (Documentation/ABI/testing/
// sysfs-devices-system-cpu). A kernel without the file has none, or is older than 4.19.
func (fs FS) HyperThreads() bool {
	n, err := fs.intAt("devices", "system", "cpu", "smt", "active")
	return err == nil && n == 1
}

// Turbo reports whether CPUs may go beyond their base frequency: intel_pstate/no_turbo is 0 (Documentation/admin-guide/pm/
// intel_pstate.rst), or cpufreq/boost is 1 (admin-guide/pm/cpufreq.rst). Guests have neither.
func (fs FS) Turbo() bool {
	if n, err := fs.intAt("devices", "system", "cpu", "intel_pstate", "no_turbo"); err == nil {
		return n == 0
	}
	n, err := fs.intAt("devices", "system", "cpu", "cpufreq", "boost")
	return err == nil && n == 1
}
