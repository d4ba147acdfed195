// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import "fmt"

// standIn is what can be told where delay accounting is on, and by something instead where it is not.
func (m *machine) standIn(instead string) support {
	switch {
	case m.waits == nil:
		return support{}
	case m.pressure.no != "":
		return support{no: fmt.Sprintf("%v; %s cannot stand in: %s", m.waits, instead, m.pressure.no)}
	}
	less := fmt.Sprintf("%s stands in: %v (set kernel.task_delayacct=1 before containers start, then restart koordlet)", instead, m.waits)
	if m.pressure.less != "" {
		less += "; " + m.pressure.less
	}
	return support{less: less}
}
