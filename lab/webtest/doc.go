// Package webtest holds the tests that need what no importer of idem should have to download: a second opinion on
// structured fields, routers, and a browser to click through the pages of example/orders and of idem ui.
//
// It is a module of its own, and has nothing but tests.
package webtest
