// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package scenario

import "strings"

// Disk is a machine's disk. Where the text of a scenario says DISK and MAJ:MIN, its name and its number stand.
type Disk struct {
	// Name is that of /sys/block, Number its "MAJOR:MINOR".
	Name, Number string
}

// diskName and diskNumber are what a scenario's text calls the disk of whatever machine it runs on.
const (
	diskName   = "DISK"
	diskNumber = "MAJ:MIN"
)

// paperDisk is the disk of the machine on paper, which the fake root has, too.
func paperDisk() Disk { return Disk{Name: "vda", Number: "254:0"} }

// fill puts this disk in the place of those words.
func (d Disk) fill(text string) string {
	return strings.NewReplacer(diskName, d.Name, diskNumber, d.Number).Replace(text)
}

// blank is fill backwards for a plan, where the disk's number is the key of a setting.
func (d Disk) blank(plan string) string {
	return strings.ReplaceAll(plan, "["+d.Number+"]", "["+diskNumber+"]")
}

// On is the scenario as a machine with this disk has it: what is asked and what is wanted.
func (s *Scenario) On(d Disk) (Scenario, error) { return parse(s.Name, s.Format(), d) }
