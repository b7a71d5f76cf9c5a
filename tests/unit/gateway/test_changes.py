import asyncio

from services.gateway.changes import Changes


async def test_everybody_who_waits_goes_on_with_the_next_change():
    changes = Changes()
    waiting = [asyncio.create_task(changes.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    changes.tell()
    await asyncio.wait_for(asyncio.gather(*waiting), 5)


async def test_a_change_of_before_is_no_change():
    changes = Changes()
    changes.tell()
    waiting = asyncio.create_task(changes.wait())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    changes.tell()
    await asyncio.wait_for(waiting, 5)
