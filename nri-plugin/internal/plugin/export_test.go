// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"
	"time"
)

// Sleeping lets a test stand for the time between two connections; false ends Connect.
func (p *Plugin) Sleeping(sleep func(context.Context, time.Duration) bool) { p.sleep = sleep }
