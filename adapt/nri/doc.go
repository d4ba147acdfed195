// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package nri translates between NRI's messages and the model: sandboxes and containers in, plans out as adjustments and
// updates.
//
// Inputs are the messages of one event and a node.View; outputs are model/workload values and NRI replies. All of it is
// pure: no file, no clock, no connection. It may import model, api/protocol and NRI's api package; never policy, kernel
// or daemon.
package nri
